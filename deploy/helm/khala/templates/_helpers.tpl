{{- define "khala.name" -}}
{{- $name := contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) -}}
{{- $name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "khala.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "khala.labels" -}}
{{ include "khala.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Numbers of a values file are floats: large ones would be printed as 1e+06. */}}
{{- define "khala.data" -}}
{{- range $name, $value := . }}
{{ $name }}: {{ if and (kindIs "float64" $value) (eq (floor $value) $value) }}{{ $value | int64 | toString | quote }}{{ else }}{{ $value | toString | quote }}{{ end }}
{{- end }}
{{- end }}

{{/* The server ends by itself KHALA_DRAIN_MS and 30 s after SIGTERM; the pod is killed later than that. */}}
{{- define "khala.gracePeriod" -}}
{{- $drain := .Values.env.KHALA_DRAIN_MS | default 30000 | int64 -}}
{{ add .Values.preStopSeconds (div (add $drain 999) 1000) 35 }}
{{- end }}
