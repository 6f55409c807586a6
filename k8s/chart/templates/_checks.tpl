{{/* Checks that a schema cannot express. Each prints nothing, or fails the rendering. */}}

{{/* A size in MiB; the schema accepts Mi, Gi, MiB and GiB only. */}}
{{- define "sidelook.mebibytes" -}}
{{- $factor := ternary 1024 1 (contains "G" .) }}
{{- mul (regexFind "^[0-9]+" . | int64) $factor }}
{{- end }}

{{/* Without memory for the interpreter, the container would be killed when its caches are full. */}}
{{- define "sidelook.checkMemory" -}}
{{- $caches := .Values.config.limits.memory }}
{{- $container := .Values.resources.memory }}
{{- if lt (mul 2 (include "sidelook.mebibytes" $container)) (mul 3 (include "sidelook.mebibytes" $caches)) }}
{{- fail (printf "resources.memory: %s is less than 1.5 times config.limits.memory, which is %s; raise the first or lower the second" $container $caches) }}
{{- end }}
{{- end }}

{{/* In MiB, for the socket and any caches: see base/executor-pod/executor-pod-template.yaml. */}}
{{- define "sidelook.sharedMebibytes" -}}
{{- $caches := include "sidelook.mebibytes" .Values.config.limits.memory | int64 }}
{{- add 64 (div (add 3 (mul 3 $caches)) 4) }}
{{- end }}

{{/* A time span in milliseconds; the schema accepts numbers with these units only. */}}
{{- define "sidelook.milliseconds" -}}
{{- $factors := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 }}
{{- mulf (regexFind "^[0-9.]+" . | float64) (get $factors (regexFind "[a-z]+$" .)) }}
{{- end }}

{{/* Prometheus's operator would refuse such a monitor. */}}
{{- define "sidelook.checkPatience" -}}
{{- if gt (include "sidelook.milliseconds" .scrapeTimeout | float64) (include "sidelook.milliseconds" .interval | float64) }}
{{- fail (printf "monitoring.podMonitor.scrapeTimeout: %s is longer than interval, which is %s" .scrapeTimeout .interval) }}
{{- end }}
{{- end }}

{{/* A sidecar that is killed during its load would start the load again, for ever. */}}
{{- define "sidelook.checkStart" -}}
{{- $patience := mulf 1000 (subf (.Values.startupSeconds | float64) 60) }}
{{- range $name, $dimension := .Values.config.dimensions }}
{{- $cache := get ($dimension | default dict) "cache" | default dict }}
{{- $wait := get $cache "warmup_max_wait" | default "10m" }}
{{- if and (eq (get $cache "mode" | toString) "full") (gt (include "sidelook.milliseconds" $wait | float64) $patience) }}
{{- fail (printf "startupSeconds: %d is not a minute more than warmup_max_wait of dimension %s, %s" ($.Values.startupSeconds | int64) $name $wait) }}
{{- end }}
{{- end }}
{{- end }}

{{/* A password would be readable in the ConfigMap. Stricter than the sidecar's check; prints no part of the address. */}}
{{- define "sidelook.checkAddresses" -}}
{{- range $name, $dimension := .Values.config.dimensions }}
{{- $source := get ($dimension | default dict) "source" | default dict }}
{{- if regexMatch "://[^/?#]*:[^?#]+@|[?&](ssl)?password=|[?&][^=&]*%[^=&]*=|[[:space:]]" (get $source "dsn" | default "") }}
{{- fail (printf "config.dimensions.%s.source.dsn: holds a password; put it in dsn_file" $name) }}
{{- end }}
{{- end }}
{{- end }}
