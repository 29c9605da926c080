// Package policy decides what the hub may do on the spoke's API server.
//
// Parse reads a request with the API server's own parser, and refuses what the API server could still read differently. The
// rules of a ConfigMap allow what an operator wants to allow. A default rule allows what Argo CD's UI does to objects that
// belong to an Application of this spoke. Everything else is denied.
package policy
