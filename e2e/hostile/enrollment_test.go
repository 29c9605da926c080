package hostile_test

// enrollmentLies are those of whoever asks the principal for a certificate. They need a principal with a signer.
func enrollmentLies() []lie {
	return []lie{
		{
			who: stranger, about: `principal, enrollment`,
			sends:   `no token, one of another hub, one for another agent's name, a blocked agent's, or one that was used for another key`,
			happens: `Unauthenticated, or PermissionDenied if blocked, which only who has a good token learns; neither that nor what others try uses up a token`,
			by:      `e2e.TestTokensThatGetNoCertificate`,
		},
		{
			who: stranger, about: `principal, enrollment`,
			sends:   `one token a dozen times at once, with as many keys, to two principals`,
			happens: `one certificate is issued`,
			by:      `e2e.TestTokenIsUsedOnceInParallel`,
		},
		{
			who: stranger, about: `principal, enrollment port`,
			sends:   `Sync.Connect, Renewal.Renew`,
			happens: `Unimplemented: nothing but Enroll is served there`,
			by:      `e2e.TestEnrollmentPortServesNothingElse`,
		},
		{
			who: `agent`, about: `principal, certificate request`,
			sends:   `another agent's name, an organisation, two names, DNS names, addresses, a SPIFFE ID, the flag of a CA, other extensions and attributes`,
			happens: `InvalidArgument: a request has the agent's name and nothing else; no token is used up by another`,
			by:      `internal/identity/pki.TestRequestsThatAskForMoreThanTheName`,
		},
		{
			who: `agent`, about: `principal, certificate request`,
			sends:   `the same to the signer ca-secret`,
			happens: `the certificate has none of it: this signer decides all but the key`,
			by:      `internal/identity/pki.TestRequestDecidesNothingButTheKey`,
		},
		{
			who: `agent`, about: `principal, signer cert-manager`,
			sends:   `a request that a policy of the hub denies`,
			happens: `PermissionDenied; the reason is for the principal's log alone`,
			by:      `e2e.TestCertManagerDenies`,
		},
		{
			who: `SPIRE server`, about: `principal, signer spire`,
			sends: `a CA for another key, of another trust domain, by another root, a workload's, one that is no CA, that has ended or not begun, or with limits of path, ` +
				`names or use on it or above it; a long chain, junk, 256 KiB and more`,
			happens: `not used: the last good one is, to its end. The log says why once, and it is asked again, after a second at first and after half a minute at last`,
			by:      `principal/enrollment/spire.TestServerThatLies`,
		},
		{
			who: stranger, about: `principal, signer spire`,
			sends:   `answers at the SPIRE server's address as a workload, as another trust domain's SPIRE server, or by a CA of no bundle`,
			happens: `the handshake fails, and nothing is asked; the log says once who was wanted`,
			by:      `principal/enrollment/spire.TestServersThatAreAnother`,
		},
		{
			who: `agent`, about: `principal, signer spire`,
			sends:   `asks for a certificate under a name to whom the hub's table gives another SPIFFE ID, or under one of a component`,
			happens: `PermissionDenied: by --auth it would be nobody's or another's`,
			by:      `principal/enrollment.TestSPIFFEIDsThatAreNotGivenAway`,
		},
		{
			who: `agent`, about: `principal, certificate request`,
			sends:   `a weak key, somebody else's key, junk, 16 KiB and more`,
			happens: `InvalidArgument`,
			by:      `internal/identity/pki.TestRequestsThatNobodySignsFor`,
		},
		{
			who: `thief of a token`, about: `principal, enrollment`,
			sends:   `a token late, or under another agent's name`,
			happens: `Unauthenticated; the hub has a hash only`,
			by:      `internal/identity/enrolltoken.TestTokenIsForOneAgentOneKeyAndAWhile`,
		},
		{
			who: stranger, about: `principal, enrollment port`,
			sends:   `more requests than 20 at once of one network, then one in 2 seconds, or 100 of all, then 20 a second`,
			happens: `ResourceExhausted; others are served`,
			by:      `principal/enrollment.TestRequestsOfOneAddressAreLimited`,
		},
		{
			who: `agent`, about: `principal, renewal`,
			sends:   `more requests than 10 at once, then one in 10 seconds`,
			happens: `ResourceExhausted; others renew`,
			by:      `principal/enrollment.TestRenewalsOfOneAgentAreLimited`,
		},
		{
			who: `principal`, about: `agent, its certificate`,
			sends:   `a certificate for another key, one of a CA, one that has ended or not begun, junk, 64 KiB and more`,
			happens: `the Secret stays as it is; the agent logs why and asks again, after a second at first and after five minutes at last`,
			by:      `agent/enrollment.TestPrincipalThatLies`,
		},
		{
			who: `principal`, about: `agent, its trusted CAs`,
			sends: `CAs that do not vouch for its own certificate, no CAs, junk, CAs over a connection without TLS, or to an agent that has its CAs from a file or knows ` +
				`the principal by its host`,
			happens: `the Secret stays as it is, logged once; the certificate that came along is taken`,
			by:      `agent/enrollment.TestPrincipalThatLiesOfItsRoots`,
		},
		{
			who: `principal`, about: `agent, its trusted CAs`,
			sends:   `a CA of its own beside the one that its certificate is by, to an agent with --principal-spiffe-id and the CAs in a Secret`,
			happens: `taken, as SPIRE's next CA is: whoever can be the principal now can be so later on, until that Secret is replaced`,
			by:      `agent/enrollment.TestRootsFollowThePrincipal`,
		},
	}
}

// registrationLies are those of agents that register their clusters themselves.
func registrationLies() []lie {
	return []lie{
		{
			who: agent, about: `hello, labels and annotations of its cluster`,
			sends:   `keys of Argo CD, of this program and of Kubernetes (secret-type, agent-name, agent-mode, skip-reconcile, managed-by), keys that no rule allows, invalid and too long ones`,
			happens: `left out, whatever the rules are; logged once with what to set. What is allowed counts, and what people set wins`,
			by:      `principal/registration.TestLabelsThatAgentsMayNotSet`,
		},
		{
			who: agent, about: `hello, labels and annotations of its cluster`,
			sends:   `more than 32, a key of more than 317 bytes, a value of more than 1 KiB, a million of them`,
			happens: `the hello is skipped, and the stream ends with the reason`,
			by:      `internal/replication/wire.TestWhatAnAgentSaysOfItsClusterIsBounded`,
		},
		{
			who: agent, about: `self-registration`,
			sends:   `comes with a certificate of a trusted CA, and is blocked`,
			happens: `refused before its hello is read; nothing is made`,
			by:      `e2e.TestBlockedAgentDoesNotRegister`,
		},
		{
			who: agent, about: `self-registration`,
			sends:   `a name that another cluster has on the hub, or whose cluster Secret's name another Secret has`,
			happens: `refused with that Secret and the remedy; nothing is made or changed`,
			by:      `e2e.TestNamesThatDoNotRegister`,
		},
		{
			who: agent, about: `self-registration`,
			sends:   `labels and annotations that people have changed or removed on its cluster Secret`,
			happens: `left out: what people say there wins`,
			by:      `principal/registration.TestWhatPeopleEditStays`,
		},
		{
			who: agent, about: `self-registration`,
			sends:   `another mode than --self-registration-modes has, or than people have set on its cluster Secret`,
			happens: `refused; of an agent that has registered, the mode stays`,
			by:      `principal/registration.TestModeOfAnAgentThatRegistersItself`,
		},
		{
			who: `who gets certificates`, about: `self-registration`,
			sends:   `a flood of names, each with a certificate of a trusted CA`,
			happens: `20 a second, --max-self-registered-clusters in all; others ResourceExhausted`,
			by:      `principal/registration.TestFloodOfNamesIsBounded`,
		},
		{
			who: agent, about: `self-registration`,
			sends:   `a hello that does not fit (version, mode, mapping, selector)`,
			happens: `refused; nothing is made`,
			by:      `principal/sessions.TestAgentsThatAreRefusedDoNotRegister`,
		},
		{
			who: `hub user who reads a cluster Secret`, about: `principal, agent identity`,
			sends:   `the certificate that self-registered clusters share, if it has the name of an agent or of a component, or is a server's or a CA's`,
			happens: `such a one is never put into a cluster Secret`,
			by:      `principal/registration.TestCertificatesThatAreNotShared`,
		},
		{
			who: `hub user who reads a cluster Secret`, about: `principal, agent identity`,
			sends:   `that certificate, if its SPIFFE ID became an agent's after it was loaded`,
			happens: `it is put into no further one, and the log says whose it is`,
			by:      `principal/registration.TestSharedCertificateThatBecomesAnAgents`,
		},
	}
}
