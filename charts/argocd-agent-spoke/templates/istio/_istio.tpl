{{- /* Not empty where the chart makes Istio's objects. */}}
{{- define "spoke.istio" -}}
{{- if and (ne .Values.istio.mode "none") .Values.istio.objects }}yes{{ end }}
{{- end }}

{{- /* The same, where the agent has a sidecar. */}}
{{- define "spoke.istioSidecar" -}}
{{- if eq .Values.istio.mode "sidecar" }}{{ include "spoke.istio" . }}{{ end }}
{{- end }}

{{- /* The label by which a Pod joins the mesh. */}}
{{- define "spoke.istioLabel" -}}
{{- if eq .Values.istio.mode "sidecar" }}
sidecar.istio.io/inject: "true"
{{- else if eq .Values.istio.mode "ambient" }}
istio.io/dataplane-mode: ambient
{{- end }}
{{- end }}

{{- /* What NetworkPolicies let in besides, for the mesh. */}}
{{- define "spoke.istioIngress" -}}
{{- if eq .Values.istio.mode "ambient" }}
- ports: [{port: 15008, protocol: TCP}] # HBONE, in which everything comes; AuthorizationPolicies say who may
- ports: [{port: healthz, protocol: TCP}]
  from: # Istio's name for the kubelet, whose probes no policy would let through otherwise
    - ipBlock: {cidr: 169.254.7.127/32}
    - ipBlock: {cidr: "fd16:9254:7127:1337:ffff:ffff:ffff:ffff/128"}
{{- else if eq .Values.istio.mode "sidecar" }}
- ports: [{port: 15020, protocol: TCP}, {port: 15090, protocol: TCP}] # metrics of the sidecar
  {{- with .Values.networkPolicy.metricsFrom }}
  from: {{ toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "spoke.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "spoke.labels" .root | nindent 2 }}
{{- end }}
