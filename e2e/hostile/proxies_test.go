package hostile_test

// proxyLies are those about who comes by a proxy, by the header x-forwarded-client-cert. They need a real Envoy, or a proxy of the test's own.
func proxyLies() []lie {
	return []lie{
		{
			who: `workload of the mesh`, about: `kubeproxy behind a real Envoy`,
			sends:   `requests by its own sidecar, also with argocd-server's SPIFFE ID in the header x-forwarded-client-cert`,
			happens: `401: its SPIFFE ID is of no form in --callers`,
			by:      `e2e.TestLiveAccessWithoutAKeyForEachCluster`,
		},
		{
			who: `caller`, about: `kubeproxy, --callers`,
			sends:   `the path, or the bearer token, of an agent that its SPIFFE ID may not reach`,
			happens: `403 that names --callers`,
			by:      `kubeproxy/gateway.TestCertificatesAndTokensDecideWhichAgentIsReached`,
		},
		{
			who: stranger, about: `principal behind a real Envoy, header x-forwarded-client-cert`,
			sends:   `the header forged, twice, encoded, before the proxies' elements, or past the first of two proxies; no certificate, one with two URIs or none, or one whose URI has another element or key in it; through Envoys that replace, append or pass on, and through two in a row`,
			happens: `Unauthenticated, and both sides say why; what is replaced names nobody`,
			by:      `e2e.TestHeadersThroughEnvoy`,
		},
		{
			who: `workload of the mesh`, about: `principal with --trusted-proxies`,
			sends:   `its clients' certificates in the header, over mutual TLS, as if it were the ingress gateway`,
			happens: `Unauthenticated: it counts only from a trusted proxy`,
			by:      `e2e.TestPrincipalBehindATrustedGateway`,
		},
		{
			who: `agent behind Envoy`, about: `principal`,
			sends:   `streams over the connection by which other agents' come`,
			happens: `each is an agent of its own: a blocked agent, certificate or SPIFFE ID ends, the others do not`,
			by:      `e2e.TestAgentsBehindOneEnvoyStayApart`,
		},
		{
			who: stranger, about: `principal and kubeproxy with --insecure-plaintext`,
			sends:   `connections from another machine, without TLS`,
			happens: `closed unread, logged once a minute`,
			by:      `internal/identity.TestPlainTextIsTakenFromThisMachineOnly`,
		},
		{
			who: `caller behind a sidecar`, about: `kubeproxy`,
			sends:   `requests over the connection by which another's came before; the header missing, twice, encoded, with two elements, two URIs or none`,
			happens: `each request has the caller of its own header; else 401 with the reason; the header does not reach the spoke`,
			by:      `kubeproxy/gateway.TestCallerBehindASidecarIsThatOfEachRequest`,
		},
		{
			who: `caller`, about: `kubeproxy`,
			sends:   `the header x-forwarded-client-cert of another over a connection of its own`,
			happens: `401: it counts only from a trusted proxy`,
			by:      `kubeproxy/gateway.TestHeaderOfADirectCallerIsRefused`,
		},
		{
			who: `caller behind a sidecar`, about: `kubeproxy, blocklist`,
			sends:   `requests with a blocked certificate, URI or agent through the sidecar, over a connection that is open`,
			happens: `401, and its open requests end; those of others over the same connection do not`,
			by:      `kubeproxy/callers.TestBlocklistHoldsBehindAProxy`,
		},
		{
			who: `caller behind a sidecar`, about: `kubeproxy`,
			sends:   `requests with a certificate that expires, over a connection that stays`,
			happens: `they end when it does, by Cert of the header; without Cert after a day`,
			by:      `kubeproxy/callers.TestCertificateBehindAProxyExpires`,
		},
		{
			who: `load balancer that ends TLS`, about: `principal, JWT-SVID`,
			sends:   `an agent's streams with a token that it has overheard, again, and when it has expired`,
			happens: `Unauthenticated; the logs of both sides say why, and have nothing of the token`,
			by:      `e2e.TestTokensThatWereShownBeforeOrExpired`,
		},
		{
			who: `agent behind Envoy`, about: `principal`,
			sends:   `the header of its own sidecar, past a proxy of the hub's that passes it on, or to a principal without one: of another agent, twice, encoded, with two URIs or none`,
			happens: `Unauthenticated; the logs of both sides say why`,
			by:      `e2e.TestAgentsWithHeadersOfTheirOwn`,
		},
		{
			who: `agent behind Envoy`, about: `principal`,
			sends:   `streams by a certificate that has expired, over a connection that its own Envoy opened before`,
			happens: `Unauthenticated, and says what to set; streams that are open end when it expires, by Cert of the header`,
			by:      `e2e.TestStreamsBehindSidecarsEndWithTheirCertificates`,
		},
	}
}
