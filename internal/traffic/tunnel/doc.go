// Package tunnel makes conversations between the hub and a spoke's own services: each a net.Conn, carried by a gRPC stream
// of its own over the connection that the agent opened.
//
// On the hub a Dialer dials a target of an agent through the principal; internal/traffic/directory tells which agents there are. On the
// spoke Server takes up what the hub dials, and hands it to the Listener of its target. What is between the two, the
// principal's half, is in principal/relay. The wire is in api/tunnel/v1, and in api/PROTOCOL.md what it means.
//
// What an end says goes by Write, send and the stream to the other end's receive, its inbox and Read. How much may be between
// Write and Read is for flow to decide.
package tunnel

import "errors"

// Target is what on a spoke a conversation is with.
type Target string

// The targets that agents know.
const (
	Kube  Target = "kube"  // the spoke's API server, by HTTP
	Redis Target = "redis" // the spoke's Redis, by RESP
)

// The metadata of calls.
const (
	MetadataDial   = "tunnel-dial"   // of Accept: the id of the Dial
	MetadataAgent  = "tunnel-agent"  // of Relay.Dial: the name of the agent
	MetadataTarget = "tunnel-target" // of Relay.Dial: the target
)

// Why a Dialer cannot dial. Anything else than these and the end of the context means that the principal cannot be
// reached, or does not serve us.
var (
	// ErrUnknown means that there is no such agent.
	ErrUnknown = errors.New("there is no such agent")
	// ErrAway means that the agent is not connected. The error that wraps it says since when.
	ErrAway = errors.New("the agent is not connected")
)
