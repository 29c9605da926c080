// Package jsonsize says how large a JSON document becomes when it is decoded. A document of a megabyte may have half a million
// empty arrays, each of which takes as much memory as a long text. Who decodes what a peer sends asks here first.
package jsonsize

import "fmt"

// Limits of one document. An object of Kubernetes has at most 1.5 MiB, since etcd takes no more, and even the status of an
// application of thousands of resources has a tenth of so many values.
const (
	MaxBytes  = 3 << 19
	MaxValues = 300_000
)

// valueBytes is what an empty array or object takes in a tree of Go's maps, slices and interfaces.
const valueBytes = 100

// Memory returns how many bytes a document takes once it is decoded, about. It is never more than that of a document at the limits.
func Memory(document []byte) int64 {
	return int64(min(len(document), MaxBytes)) + valueBytes*int64(min(Values(document), MaxValues))
}

// MaxMemory is the Memory of a document at the limits.
const MaxMemory = MaxBytes + valueBytes*MaxValues

// Values returns how many values and keys a document has, at most. It takes no memory, and what is no JSON has some number, too.
func Values(document []byte) int {
	n, quoted := 1, false
	for i := 0; i < len(document); i++ {
		switch c := document[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == ',', c == ':', c == '[', c == '{':
			n++
		}
	}
	return n
}

// Check returns an error if a document is above the limits.
func Check(document []byte) error {
	if len(document) > MaxBytes {
		return fmt.Errorf("it has %d bytes of JSON, and the limit is %d: make the object smaller", len(document), MaxBytes)
	}
	return CheckValues(document)
}

// CheckValues returns an error if a document has too many values.
func CheckValues(document []byte) error {
	if n := Values(document); n > MaxValues {
		return fmt.Errorf("it has %d JSON values, and the limit is %d: make the object smaller", n, MaxValues)
	}
	return nil
}
