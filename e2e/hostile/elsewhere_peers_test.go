package hostile_test

// peerLiesElsewhere are those to principals and xds by others, and those by principals about connections, that the tests of other packages tell.
func peerLiesElsewhere() []lie {
	return []lie{
		{
			who: `principal`, about: `connection`,
			sends:   `that another agent of this name is served, again and again, though there is none`,
			happens: `the agent tries again after a minute, and after up to 15; what is open through the old connection goes on, and counts among the 1000`,
			by:      `agent/dialer.TestSupersededAgentBacksOff`,
		},
		{
			who: `principal`, about: `tunnel dial`,
			sends:   `that it is unavailable, again and again`,
			happens: `the component dials again for three seconds, each time after twice as long, and then fails the request`,
			by:      `internal/traffic/tunnel.TestDialGivesUpWithoutAPrincipal`,
		},
		{
			who: `principal that was taken over`, about: `principals as peers, and xds`,
			sends:   `nothing, or a first update without an end; an epoch so far ahead that the distance overflows; nonsense, each time that it is connected`,
			happens: `it is disconnected, after 15 s if it says nothing, and asked ever more seldom; one line of log and a count; other principals and xds' clients wait for nothing else`,
			by:      `internal/traffic/peers.TestPeerThatSaysNonsenseConcernsNobodyElse`,
		},
		{
			who: `DNS`, about: `principals as peers, and xds`,
			sends:   `thousands of addresses of principals`,
			happens: `the first 100 are dialled, and one line of log; whoever has one of them has to prove that it is a principal`,
			by:      `internal/traffic/peers.TestAddressesOfPeersAreBounded`,
		},
		{
			who: `agent`, about: `Listen`,
			sends:   `Listen again and again, of which all principals and components are told`,
			happens: `60 in a row, and one a second; ResourceExhausted and one line of log for more`,
			by:      `principal/relay.TestAgentThatListensAgainAndAgainIsHeldUp`,
		},
		{
			who: `agent`, about: `shutdown of a principal`,
			sends:   `nothing: it alone stays, although it was asked to go elsewhere`,
			happens: `after three quarters of --drain-timeout components leave the principal all the same, and nobody may begin to listen there`,
			by:      `principal/relay.TestDrainDoesNotWaitForOneAgentThatStays`,
		},
		{
			who: `xds that was taken over`, about: `principal`,
			sends:   `asks for the directory of agents, with its certificate`,
			happens: `PermissionDenied: that is for components that dial agents`,
			by:      `principal/relay.TestDirectoryIsForComponentsThatDial`,
		},
		{
			who: `client of xds`, about: `xds`,
			sends:   `"*", "agents/*" and other names that stand for many agents, names of nothing, names of 64 KiB`,
			happens: `ignored and not remembered; others are answered as soon as before`,
			by:      `xds/routes.TestNamesForManyHostsAreIgnored`,
		},
		{
			who: `client of xds`, about: `xds`,
			sends:   `more than 50,000 names of a type, or says that it has as many; unsubscribes from what it never asked for`,
			happens: `disconnected, with one line of log`,
			by:      `xds/routes.TestClientThatAsksForTooMuchIsCutOff`,
		},
		{
			who: `client of xds`, about: `xds`,
			sends:   `a refusal (NACK) of each answer, without a version or with another process'`,
			happens: `it is sent nothing before something changes; one line of log, a count, and the reason, cut to 1 KiB, in /routes`,
			by:      `xds/routes.TestRefusedStateIsNotRepeated`,
		},
		{
			who: `anyone in the hub's network`, about: `xds`,
			sends:   `silent connections, also from the address of a client`,
			happens: `who has authenticated keeps its place: what is counted with them are 500 handshakes, of which the oldest makes room`,
			by:      `internal/traffic/connlimit.TestUnfinishedHandshakesKeepNobodyOut`,
		},
	}
}
