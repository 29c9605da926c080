package hostile_test

// identityLiesElsewhere are those about who somebody is that the tests of other packages tell.
func identityLiesElsewhere() []lie {
	return []lie{
		{
			who: `agent, or who listened in on one`, about: `principal, JWT-SVID`,
			sends:   `a token for another audience, expired, signed by another key, of another trust domain, or one that was shown before`,
			happens: `Unauthenticated, with the reason, and nothing of the token in any log`,
			by:      `internal/identity/jwtsvid.TestTokenProvesOnce`,
		},
		{
			who: `who listened in on an agent`, about: `principal, JWT-SVID`,
			sends:   `a token that was shown before, written in another way that verifies: the twin of its ECDSA signature, other bits where base64 leaves some over, white space`,
			happens: `Unauthenticated: what is signed tells tokens apart, not their text`,
			by:      `internal/identity/jwtsvid.TestTokenInOtherWordsProvesNothing`,
		},
		{
			who: `who listened in on an agent`, about: `principal, JWT-SVID`,
			sends:   `a token that was shown to another principal, or to the one that ran before`,
			happens: `Unauthenticated once it is a minute old, and, if it is more than 5 seconds older than the principal's start, at once; until then another principal takes it`,
			by:      `internal/identity/jwtsvid.TestTokenThatMayHaveBeenShownElsewhere`,
		},
		{
			who: `anyone in either network`, about: `principal, JWT-SVID`,
			sends:   `a token in clear text, two tokens, or one beside a client certificate or a sidecar's header`,
			happens: `Unauthenticated; a certificate or the sidecar's header decides, if there is one`,
			by:      `internal/identity.TestTokenProvesOnlyWhatNothingElseDoes`,
		},
		{
			who: `anyone in the Pod's network`, about: `principal, header x-forwarded-client-cert`,
			sends:   `the header over plain text from another address than the sidecar's, over a TLS connection of its own, as another proxy, or without a certificate; past its proxy twice, empty, encoded, or with two elements`,
			happens: `Unauthenticated: it counts only from a trusted proxy`,
			by:      `internal/identity.TestHeaderCountsOnlyFromAProxy`,
		},
		{
			who: `agent behind a proxy`, about: `principal, header x-forwarded-client-cert`,
			sends:   `with --xfcc-hop, elements of its own to the left of the proxies', or within its own by a comma in its URI; or it is no proxy itself`,
			happens: `Unauthenticated: there may be no more elements than proxies, all but the first are of --trusted-proxies, and each was written by whom the next one is of`,
			by:      `internal/identity.TestThereAreAsManyElementsAsProxies`,
		},
		{
			who: `agent behind a proxy`, about: `principal, header x-forwarded-client-cert`,
			sends:   `a certificate whose subject has what looks like the rest of a header: quotes, commas, another URI`,
			happens: `it stays part of the subject`,
			by:      `internal/identity/xfcc.TestHeadersOfEnvoy`,
		},
		{
			who: `agent`, about: `principal, SPIFFE ID`,
			sends:   `an ID of another trust domain, another path, in other case, encoded, two IDs, or the ID that the table has for another agent`,
			happens: `Unauthenticated, with the ID and what was wanted`,
			by:      `internal/identity.TestWhoIsWhichAgent`,
		},
		{
			who: `CA of a federated trust domain`, about: `principal and agent, X.509-SVID`,
			sends:   `an X.509-SVID of another trust domain than its own`,
			happens: `the handshake fails: not by the bundle of its trust domain`,
			by:      `internal/identity/certs.TestTrustDomainSpeaksForItselfAlone`,
		},
		{
			who: `thief of a certificate`, about: `principal, argocd-agent-session`,
			sends:   `streams with a session of its own, or another agent's session`,
			happens: `they end with the certificate that opened them`,
			by:      `internal/identity.TestNewerCertificateOfASessionKeepsItsOlderStreams`,
		},
		{
			who: `anyone in a mesh`, about: `principal, component identity`,
			sends:   `with --auth mtls:uri, a URI of its own and a component's common name`,
			happens: `is no component`,
			by:      `internal/identity.TestComponentIsKnownByTheFieldThatAuthReads`,
		},
		{
			who: `hub user who reads a cluster Secret`, about: `principal, agent identity`,
			sends:   `the certificate of a caller of kubeproxy, also with the agent's or a component's common name beside the URI`,
			happens: `Unauthenticated: a caller is no agent and no component`,
			by:      `internal/identity.TestCertificateOfACallerIsNobodyElses`,
		},
		{
			who: `anyone in a mesh`, about: `kubeproxy`,
			sends:   `a common name beside a URI that is not in --callers`,
			happens: `401: callers are known by their URI alone`,
			by:      `kubeproxy/callers.TestCallersAreKnownByTheirURIAlone`,
		},
		{
			who: `agent`, about: `handshake`,
			sends:   `renews its certificate, or issues another of its name, after its name was blocked`,
			happens: `refused: a name blocks every certificate`,
			by:      `internal/identity/blocklist.TestAnotherCertificateOfABlockedAgentIsRefused`,
		},
		{
			who: `caller of kubeproxy`, about: `kubeproxy`,
			sends:   `comes with a blocked caller's certificate, or asks for a blocked agent`,
			happens: `401 or 403, open requests end`,
			by:      `kubeproxy/callers.TestBlockedCallersAreRefused`,
		},
		{
			who: `anyone in the network`, about: `/metrics with --metrics-authorization`,
			sends:   `any number of bearer tokens that it makes up; TLS handshakes that fail`,
			happens: `five TokenReviews a second, 429 beyond; tokens that were allowed lately are asked about all the same; few log lines`,
			by:      `internal/base/kube.TestMadeUpTokensDoNotBusyTheAPIServer`,
		},
		{
			who: `principal`, about: `connection`,
			sends:   `that the agent is to connect again in a year, in no time, in a negative or an impossible one (RetryInfo)`,
			happens: `the agent waits for two minutes at most; what is no time to wait counts as if it had not been said`,
			by:      `agent/dialer.TestPrincipalThatTellsAgentsNonsense`,
		},
		{
			who: `agents`, about: `connection`,
			sends:   `all of them connect at once, or again and again`,
			happens: `--sessions-per-second begin a session; others are told when to come, each at another time`,
			by:      `principal/sessions.TestAgentsThatComeAtOnceAreTakenInAtARate`,
		},
		{
			who: `anyone in the network`, about: `TLS at the principal and kubeproxy`,
			sends:   `connections that never finish a handshake`,
			happens: `who has authenticated keeps its place; of --max-connections / 4 handshakes the oldest of the address with most makes room, and each has 15 s at the principal and 10 s at kubeproxy`,
			by:      `internal/traffic/connlimit.TestUnfinishedHandshakesKeepNobodyOut`,
		},
		{
			who: `anyone in the network`, about: `kubeproxy`,
			sends:   `200 silent connections; more connections with one certificate than it may have`,
			happens: `callers are served, those that are there and new ones; 429 with the reason for the certificate that has too many`,
			by:      `kubeproxy/gateway.TestStrangersConnectionsKeepNoCallerOut`,
		},
	}
}
