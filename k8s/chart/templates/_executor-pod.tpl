{{/* The executor pod; base/executor-pod/executor-pod-template.yaml explains each line. */}}
{{- define "sidelook.executorPod" -}}
{{- include "sidelook.checkMemory" . -}}
{{- include "sidelook.checkStart" . -}}
apiVersion: v1
kind: Pod
metadata:
  name: sidelook-executor
  labels:
    app.kubernetes.io/name: sidelook
    app.kubernetes.io/component: executor
spec:
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . | quote }}
    {{- end }}
  {{- end }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext:
    runAsNonRoot: true
    runAsUser: 185
    runAsGroup: 185
    fsGroup: 185
    seccompProfile:
      type: RuntimeDefault
  initContainers:
    - name: sidelook
      image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy | quote }}
      restartPolicy: Always
      args: [serve, --config, /etc/sidelook/sidelook.yaml]
      ports:
        - name: health
          containerPort: 8816
          protocol: TCP
      startupProbe:
        httpGet: { path: /startupz, port: health }
        periodSeconds: 1
        timeoutSeconds: 2
        failureThreshold: {{ .Values.startupSeconds | int64 }}
      livenessProbe:
        httpGet: { path: /livez, port: health }
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 3
        terminationGracePeriodSeconds: 5
      readinessProbe:
        httpGet: { path: /readyz, port: health }
        periodSeconds: 5
        timeoutSeconds: 2
        failureThreshold: 2
      resources:
        requests: { cpu: {{ .Values.resources.cpu | quote }}, memory: {{ .Values.resources.memory | quote }} }
        limits: { memory: {{ .Values.resources.memory | quote }} }
      securityContext:
        allowPrivilegeEscalation: false
        privileged: false
        readOnlyRootFilesystem: true
        capabilities: { drop: [ALL] }
      volumeMounts:
        - { name: sidelook-socket, mountPath: /run/sidelook }
        - { name: sidelook-config, mountPath: /etc/sidelook, readOnly: true }
        - { name: sidelook-secret, mountPath: /etc/sidelook-secret, readOnly: true }
  containers:
    - name: spark-kubernetes-executor
      securityContext:
        allowPrivilegeEscalation: false
        privileged: false
        capabilities: { drop: [ALL] }
      volumeMounts:
        - { name: sidelook-socket, mountPath: /run/sidelook, readOnly: true }
  volumes:
    - name: sidelook-socket
      emptyDir: { medium: Memory, sizeLimit: {{ include "sidelook.sharedMebibytes" . }}Mi }
    - name: sidelook-config
      configMap: { name: {{ .Values.name | quote }}, defaultMode: 0444 }
    - name: sidelook-secret
      secret: { secretName: {{ .Values.secretName | quote }}, defaultMode: 0440 }
{{- end }}
