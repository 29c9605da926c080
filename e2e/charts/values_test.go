package charts_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Values that mean nothing are refused, by a sentence that says which and why.
func TestValuesThatAreRefused(t *testing.T) {
	t.Parallel()
	const address = "--set=server.address=hub.example.com"
	for name, c := range map[string]struct {
		chart string
		args  []string
		want  string
	}{
		"hub: no address":             {hub, nil, "server.address is empty: say by which host name or address agents reach this hub"},
		"hub: a URL":                  {hub, []string{"--set=server.address=https://hub.example.com"}, `server.address is "https://hub.example.com": it is a host name`},
		"hub: a port":                 {hub, []string{"--set=server.address=hub.example.com:443"}, "the port is principal.service.port"},
		"hub: a typing error":         {hub, []string{address, "--set=princpal.replicas=3"}, "additional properties 'princpal' not allowed"},
		"hub: a word for a number":    {hub, []string{address, "--set=principal.replicas=three"}, "at '/principal/replicas': got string, want integer"},
		"hub: no replicas":            {hub, []string{address, "--set=principal.replicas=0"}, "at '/principal/replicas': minimum: got 0, want 1"},
		"hub: an unknown mode":        {hub, []string{address, "--set=certificates.mode=magic"}, "at '/certificates/mode': value must be one of 'job', 'secrets', 'cert-manager', 'spire', 'sidecar'"},
		"hub: a port that is none":    {hub, []string{address, "--set=principal.service.port=70000"}, "at '/principal/service/port': maximum"},
		"hub: an unknown parameter":   {hub, []string{address, `--set-string=params.principal\.nothing=1`}, `params has the key "principal.nothing", which is no setting of a program`},
		"hub: SPIRE, no trust domain": {hub, []string{address, "--set=certificates.mode=spire"}, "certificates.mode is spire, and trustDomain is empty"},
		"hub: SPIRE, no socket":       {hub, []string{address, "--set=certificates.mode=spire,trustDomain=hub.example,certificates.spire.csiDriver="}, "says where the socket of the Workload API is"},
		"hub: no issuer":              {hub, []string{address, "--set=certificates.mode=cert-manager"}, "certificates.certManager.issuerRef.name is empty"},
		"hub: enrollment, no CA":      {hub, []string{address, "--set=certificates.mode=secrets,enrollment.enabled=true"}, "enrollment.enabled needs the CA of certificates.mode=job"},
		"hub: Istio, no trust domain": {hub, []string{address, "--set=istio.mode=sidecar"}, "istio.mode is sidecar, and trustDomain is empty"},
		"hub: Istio, an address":      {hub, []string{"--set=server.address=192.0.2.1,trustDomain=hub.example,istio.mode=sidecar"}, "server.address is the address 192.0.2.1"},
		"hub: ambient, no client":     {hub, []string{address, "--set=istio.mode=ambient,certificates.mode=sidecar,trustDomain=hub.example"}, "ambient mode forwards no client certificates"},
		"hub: Argo CD not in Istio":   {hub, []string{address, "--set=istio.mode=sidecar,istio.argocd=false,certificates.mode=sidecar,trustDomain=hub.example"}, "Have Argo CD's Pods in the mesh"},
		"hub: an unknown data plane":  {hub, []string{address, "--set=istio.mode=cni"}, "at '/istio/mode': value must be one of 'none', 'sidecar', 'ambient'"},
		"hub: agents by SPIFFE ID":    {hub, []string{address, "--set=istio.agents={spiffe://a/ns/b/sa/c}"}, "at '/istio/agents/0': 'spiffe://a/ns/b/sa/c' does not match pattern"},
		"hub: more than all traces":   {hub, []string{address, "--set=istio.tracing.samplingPercentage=200"}, "at '/istio/tracing/samplingPercentage': maximum: got 200, want 100"},
		"hub: a port of Services":     {hub, []string{address, `--set-string=params.kubeproxy\.listen-port=9091`}, "params has kubeproxy.listen-port=9091: Services and policies of this chart lead to port 9090"},
		"hub: enrollment elsewhere":   {hub, []string{address, `--set=enrollment.enabled=true,params.principal\.enrollment-port=443`}, "params has principal.enrollment-port=443: Services and policies of this chart lead to port 8444"},
		"hub: no port for probes":     {hub, []string{address, `--set=params.xds\.healthz-port=0`}, "params has xds.healthz-port=0: probes, Services and policies of this chart need that port"},
		"hub: an address with spaces": {hub, []string{"--set=server.address=hub example"}, "at '/server/address': 'hub example' does not match pattern"},
		"hub: an unknown log level":   {hub, []string{address, "--set=log.level=verbose"}, "at '/log/level': 'verbose' does not match pattern"},
		"hub: a name for an address":  {hub, []string{address, "--set=certificates.ip={hub.example.com}"}, "at '/certificates/ip/0': 'hub.example.com' does not match pattern"},
		"hub: an address for a range": {hub, []string{address, "--set=principal.service.loadBalancerSourceRanges={192.0.2.1}"}, "at '/principal/service/loadBalancerSourceRanges/0': '192.0.2.1' does not match pattern"},
		"hub: a relative folder":      {hub, []string{address, "--set=certificates.spire.hostPath=run/spire"}, "at '/certificates/spire/hostPath': 'run/spire' does not match pattern"},
		"hub: Redis without a port":   {hub, []string{address, "--set=redis.address=argocd-redis"}, "at '/redis/address': 'argocd-redis' does not match pattern"},
		"hub: Redis of any labels":    {hub, []string{address, `--set=redis.podLabels.app\.kubernetes\.io/name=null`}, "at '/redis/podLabels': minProperties: got 0, want 1"},
		"spoke: no address":           {spoke, nil, "server.address is empty: say where this cluster reaches the principal"},
		"spoke: a port":               {spoke, []string{"--set=server.address=hub.example.com:443"}, "the port is server.port"},
		"spoke: an unknown mode":      {spoke, []string{address, "--set=mode=automatic"}, "at '/mode': value must be one of 'managed', 'autonomous'"},
		"spoke: a name that is none":  {spoke, []string{address, "--set=name=Not_a_name"}, "at '/name': 'Not_a_name' does not match pattern"},
		"spoke: an unknown parameter": {spoke, []string{address, `--set-string=params.agent\.nothing=1`}, `params has the key "agent.nothing", which is no setting of the agent`},
		"spoke: SPIRE, no SPIFFE ID":  {spoke, []string{address, "--set=certificates.mode=spire"}, "certificates.mode is spire, and server.spiffeID is empty"},
		"spoke: no SPIFFE ID":         {spoke, []string{address, "--set=server.spiffeID=hub"}, "at '/server/spiffeID': 'hub' does not match pattern"},
		"spoke: no issuer":            {spoke, []string{address, "--set=name=berlin,certificates.mode=cert-manager"}, "certificates.certManager.issuerRef.name is empty"},
		"spoke: an issuer, no name":   {spoke, []string{address, "--set=certificates.mode=cert-manager,certificates.certManager.issuerRef.name=a"}, "name is empty: the certificate names the agent"},
		"spoke: a token for nothing":  {spoke, []string{address, "--set=certificates.enroll.token=a.b"}, "certificates.enroll.token is given, and certificates.mode is secrets"},
		"spoke: Istio, an address":    {spoke, []string{"--set=server.address=192.0.2.1,istio.mode=ambient"}, "server.address is the address 192.0.2.1"},
		"spoke: ambient, no client":   {spoke, []string{address, "--set=istio.mode=ambient,certificates.mode=sidecar"}, "ambient mode shows nobody outside of the mesh who the agent is"},
		"spoke: Istio, no gateway":    {spoke, []string{address, "--set=istio.mode=sidecar,certificates.mode=sidecar"}, "say which SPIFFE ID the hub's ingress gateway has"},
		"spoke: no port for metrics":  {spoke, []string{address, `--set-string=params.agent\.metrics\.port=0`}, "params has agent.metrics.port=0: probes and policies of this chart need that port"},
		"spoke: an unknown log level": {spoke, []string{address, "--set=log.level=info\\,sync=verbose"}, "at '/log/level': 'info,sync=verbose' does not match pattern"},
		"spoke: an address, spaces":   {spoke, []string{"--set=server.address=hub example"}, "at '/server/address': 'hub example' does not match pattern"},
		"spoke: a relative folder":    {spoke, []string{address, "--set=certificates.spire.hostPath=run/spire"}, "at '/certificates/spire/hostPath': 'run/spire' does not match pattern"},
		"spoke: Redis by a URL":       {spoke, []string{address, "--set=redis.address=redis://argocd-redis:6379"}, "at '/redis/address': 'redis://argocd-redis:6379' does not match pattern"},
		"spoke: a list for a text":    {spoke, []string{address, "--set=policy={a,b}"}, "at '/policy': got array, want string"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, problem := template(t, c.chart, c.args...)
			require.Contains(t, problem, c.want)
		})
	}
}
