import { KhalaError } from "@khala/contracts";

/** The error for input that is refused, with the name of the field; without one where the whole body is wrong. */
export function invalid(field: string, message: string): KhalaError {
  return new KhalaError("invalid_request", message, field ? { field } : {});
}
