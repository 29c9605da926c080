// Package tunnel makes tunnel connections between the hub and a spoke's own services. Each is a net.Conn, in a gRPC stream of
// its own over the TCP connection that the agent opened.
//
// On the hub a Dialer dials a target of an agent through the principal; internal/traffic/directory says which agents there
// are. On the spoke a Server accepts what the hub dials, and hands it to the Listener of its target. The principal's part,
// between the two, is in principal/relay. The messages are in api/tunnel/v1, and their meaning in api/PROTOCOL.md.
//
// Data go through Write, sendFrames, the stream, the other end's receiveFrames, its inbox, and Read. credit limits how much
// may be in flight between Write and Read.
package tunnel

import "errors"

// Target is the service of a spoke that a connection is to.
type Target string

// The targets that agents know.
const (
	Kube  Target = "kube"  // the spoke's API server, by HTTP
	Redis Target = "redis" // the spoke's Redis, by RESP
)

// Metadata keys of the calls.
const (
	MetadataDial   = "tunnel-dial"   // of Accept: the id of the Dial
	MetadataAgent  = "tunnel-agent"  // of Relay.Dial: the name of the agent
	MetadataTarget = "tunnel-target" // of Relay.Dial: the target
)

// Why a Dialer cannot dial. Other errors, but the context's, mean that the principal cannot be reached or refuses this
// component.
var (
	// ErrUnknownAgent means that there is no such agent.
	ErrUnknownAgent = errors.New("there is no such agent")
	// ErrNotConnected means that the agent is not connected. The error that wraps it says since when.
	ErrNotConnected = errors.New("the agent is not connected")
)
