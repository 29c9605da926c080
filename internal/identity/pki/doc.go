// Package pki makes private keys, and issues X.509 certificates: a CA, and the server and client certificates that
// it signs.
//
// It holds no state beyond an CA in memory and reads and writes nothing but PEM text; where that text is kept
// (files, Secrets) is for the caller to say. Reading certificates back for use in TLS is the duty of package certs.
package pki
