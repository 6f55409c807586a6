{{/* The labels of every object. */}}
{{- define "sidelook.labels" -}}
app.kubernetes.io/name: sidelook
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end }}

{{/* The selector of executor pods with a sidecar. */}}
{{- define "sidelook.executors" -}}
app.kubernetes.io/name: sidelook
spark-role: executor
{{- end }}
