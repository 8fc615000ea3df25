"use client";
import dynamic from "next/dynamic";

/** Live data is the browser's: there is nothing to render on the server. */
export default dynamic(() => import("../page/page.tsx"), { ssr: false });
