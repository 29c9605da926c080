// Package certs keeps TLS material current while the process runs, and puts it to use on both ends of a connection.
//
// A Source joins a certificate with its key (from files or a Kubernetes Secret) and a pool of trusted CAs (from
// a file or a Secret), follows every change of both, and keeps the last good of each when a change is bad. ServerTLS,
// ServerCredentials and ClientCredentials take what is current anew for every handshake, so nothing is ever restarted,
// and say why a handshake came to nothing in words that a person can act on. Source.VerifyClient says of a connection that
// lives on whether it would still come about.
//
// Who a peer is, once its certificate has been verified, is for package identity to say.
package certs
