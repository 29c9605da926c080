// Package syncv1 is the generated Go code of sync.proto: the client and server of the one stream between an agent and
// its principal. What travels on it is written down in api/PROTOCOL.md.
package syncv1
