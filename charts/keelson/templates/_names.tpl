{{- /* What finds the operator's pods. It can't be changed later. */ -}}
{{- define "keelson.selector" -}}
app.kubernetes.io/name: keelson
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- /* The labels of all that the chart installs. */ -}}
{{- define "keelson.labels" -}}
{{ include "keelson.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: keelson
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") | quote }}
{{- end }}

{{- define "keelson.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}
