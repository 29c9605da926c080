package hostile_test

// enrollmentLies are those of whoever asks the principal for a certificate. They need a principal with a signer.
func enrollmentLies() []lie {
	return []lie{
		{
			who: stranger, about: `principal, enrollment`,
			sends:   `no token, one of another hub, one for another agent's name, a blocked agent's, or one that was used for another key`,
			happens: `Unauthenticated, or PermissionDenied if blocked; what others try does not use up a token`,
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
	}
}
