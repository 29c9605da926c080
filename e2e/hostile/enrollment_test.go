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
			sends:   `a common name of a component, organisations, DNS names, addresses, the URI of a caller, the flag of a CA`,
			happens: `the certificate has none of it: the signer decides all but the key`,
			by:      `internal/identity/pki.TestRequestDecidesNothingButTheKey`,
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
