// Package certs reloads TLS certificates and trusted CAs while the process runs, and uses them on both ends of a connection.
//
// A Source joins a certificate with its key (from files or a Kubernetes Secret) and a pool of trusted CAs (from
// a file or a Secret), follows every change of both, and keeps the last good of each when a change is bad. ServerTLS,
// ServerCredentials and ClientCredentials take what is current anew for every handshake, so nothing is ever restarted,
// and explain a failed handshake in words that an operator can act on. Source.VerifyClient says of a connection that
// lives on whether it would still come about.
//
// Package identity reads who a peer is from its verified certificate.
package certs
