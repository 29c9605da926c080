// Package pki makes private keys, and issues X.509 certificates: a CA, and the server and client certificates that
// it signs.
//
// It holds no state beyond a CA in memory and reads and writes nothing but PEM text; the caller decides where
// that text is kept (files, Secrets). Package certs reads certificates back for use in TLS.
package pki
