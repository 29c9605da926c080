// Package apiproxy lets the hub reach the spoke's API server. It is an HTTP handler that asks the policy, writes an audit log,
// and forwards requests with the agent's own credentials, otherwise unchanged.
package apiproxy
