// Package identity answers one question: which agent is the peer of this connection?
//
// An Authenticator is made once from the setting --auth and asked for every stream. It believes only what a verified
// TLS connection proves. Other packages decide what the peer may do, and when to end a stream whose Peer.NotAfter
// has come.
package identity
