{{- /* Of what doctor may do, while it runs. Helm deletes it when the Pod has ended, whatever came of it. */}}
{{- define "hub.doctorMetadata" -}}
labels:
  app.kubernetes.io/name: argocd-agent-doctor
  app.kubernetes.io/instance: {{ .Release.Name }}
annotations:
  helm.sh/hook: test
  helm.sh/hook-weight: "-5" # before the Pod
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
