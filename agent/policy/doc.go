// Package policy decides what the hub may do on the spoke's API server.
//
// Three things come together. Parse reads a request with the API server's own parser and refuses whatever the two could see
// differently. The rules of a ConfigMap allow what an operator wants allowed. And a default rule allows what Argo CD's UI
// does to objects that belong to an application of this spoke. What none of them allows is denied.
package policy
