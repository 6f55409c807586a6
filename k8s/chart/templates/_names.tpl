{{/* The labels of every object. */}}
{{- define "sidelook.labels" -}}
app.kubernetes.io/name: sidelook
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Which pods are executors with a sidecar. */}}
{{- define "sidelook.executors" -}}
app.kubernetes.io/name: sidelook
spark-role: executor
{{- end }}

{{/* A size in MiB; the schema lets in Mi, Gi, MiB and GiB only. */}}
{{- define "sidelook.mebibytes" -}}
{{- $factor := ternary 1024 1 (contains "G" .) }}
{{- mul (regexFind "^[0-9]+" . | int64) $factor }}
{{- end }}

{{/* A container without room for the interpreter would be killed as soon as its caches are full. */}}
{{- define "sidelook.checkMemory" -}}
{{- $caches := .Values.config.limits.memory }}
{{- $container := .Values.resources.memory }}
{{- if lt (mul 2 (include "sidelook.mebibytes" $container)) (mul 3 (include "sidelook.mebibytes" $caches)) }}
{{- fail (printf "resources.memory: %s is less than half as much again as config.limits.memory, which is %s; raise the first or lower the second" $container $caches) }}
{{- end }}
{{- end }}
