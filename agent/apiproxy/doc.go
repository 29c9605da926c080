// Package apiproxy lets the hub reach the spoke's API server: an HTTP handler that asks the policy, writes down who did what,
// and passes requests on with the agent's own credentials, unchanged but for those.
package apiproxy
