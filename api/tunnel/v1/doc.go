// Package tunnelv1 is the generated code of tunnel.proto. See api/PROTOCOL.md.
package tunnelv1
