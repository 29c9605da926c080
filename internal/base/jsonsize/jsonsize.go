// Package jsonsize says how much memory a JSON document takes when it is decoded. A document of a megabyte may have half a million
// empty arrays, each of which takes as much memory as a long text. Who decodes what a peer sends, or hands it to argocd-server, which
// decodes it, asks here first. Counter is for documents that come in pieces; the functions are for the objects of the Sync stream.
package jsonsize

import "fmt"

// Limits of one document. An object of Kubernetes has at most 1.5 MiB, since etcd takes no more, and even the status of an
// application of thousands of resources has a tenth of so many values.
const (
	maxBytes  = 3 << 19
	maxValues = 300_000
)

// MaxMemory is what one document may take of a budget, since it is checked as well.
const MaxMemory = 32 << 20

// Memory returns how many bytes a document takes once it is decoded to a tree of maps, slices and interfaces: MaxMemory at most.
func Memory(document []byte) int64 { return min(count(document).Memory(ElementOfTree), MaxMemory) }

// Values returns how many values and keys a document has, at most. What is no JSON has some number, too.
func Values(document []byte) int { return int(count(document).Values()) }

func count(document []byte) *Counter {
	var c Counter
	_, _ = c.Write(document) // never fails
	return &c
}

// Check returns an error if a document is above the limits.
func Check(document []byte) error {
	if len(document) > maxBytes {
		return fmt.Errorf("it has %d bytes of JSON, and the limit is %d: make the object smaller", len(document), maxBytes)
	}
	return CheckValues(document)
}

// CheckValues returns an error if a document has too many values.
func CheckValues(document []byte) error {
	if n := Values(document); n > maxValues {
		return fmt.Errorf("it has %d JSON values, and the limit is %d: make the object smaller", n, maxValues)
	}
	return nil
}
