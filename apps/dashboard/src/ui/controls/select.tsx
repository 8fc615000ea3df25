export interface SelectProps<Value extends string> {
  readonly label: string;
  /** Otherwise the label is for screen readers alone. */
  readonly showLabel?: boolean;
  readonly value: Value;
  readonly options: readonly { readonly value: Value; readonly label: string }[];
  readonly onChange: (value: Value) => void;
}

/** The platform's own select, with a label. */
export function Select<Value extends string>(props: SelectProps<Value>) {
  const { label, showLabel = false, value, options, onChange } = props;
  return (
    <label className="select">
      <span className={showLabel ? "select-label" : "visually-hidden"}>{label}</span>
      <select
        value={value}
        onChange={(event) => {
          const chosen = options.find((option) => option.value === event.target.value);
          if (chosen) onChange(chosen.value);
        }}
      >
        {options.map((option) => (
          <option key={option.value} value={option.value}>
            {option.label}
          </option>
        ))}
      </select>
    </label>
  );
}
