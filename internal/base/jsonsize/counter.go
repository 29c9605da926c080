package jsonsize

import "unicode/utf8"

// Weights of what a document consists of: what each takes once Go has decoded it, with the room that slices and maps keep for more. The
// test of this package measures them on trees of maps, slices and interfaces; e2e/contract on the types of Argo CD and Kubernetes.
const (
	weightObject = 288 // a map with its first group of eight entries, or a struct behind a pointer
	weightKey    = 96  // an entry of a larger map, with a value that is boxed
	weightOther  = 2   // a byte that is not ASCII, besides itself: if it is no UTF-8 it becomes the three of U+FFFD
)

// Weights of an element of an array.
const (
	// ElementOfTree is what it takes in a tree of maps, slices and interfaces: an empty array there.
	ElementOfTree = 64
	// ElementOfArgoCD is what it takes in what Argo CD keeps in Redis: a ResourceNode of an ApplicationTree is the largest.
	ElementOfArgoCD = 264
	// ElementOfKubernetes is what it takes in the lists of Kubernetes that argocd-server decodes: an Event of an EventList is the largest.
	ElementOfKubernetes = 768
)

// maxDepth is how deep Go's decoders go.
const maxDepth = 10_000

// Counter counts what a document that comes in pieces consists of. It keeps none of it. The zero value has counted nothing.
type Counter struct {
	bytes, others, values   int64
	elements, objects, keys int64
	quoted, escaped         bool   // within a string, and behind a backslash in it
	inObject                []bool // for each array and object that is open. Decoders of Go go no deeper than maxDepth, either
}

// Write counts a piece. It returns no error.
func (c *Counter) Write(piece []byte) (int, error) {
	c.bytes += int64(len(piece))
	for _, b := range piece {
		if b >= utf8.RuneSelf {
			c.others++
		}
		switch {
		case c.escaped:
			c.escaped = false
		case c.quoted:
			c.escaped, c.quoted = b == '\\', b != '"'
		case b == '"':
			c.quoted = true
		case b == ':':
			c.values++
		case b == ',':
			c.member()
		case b == '{' || b == '[':
			c.open(b == '{')
		case b == '}' || b == ']':
			c.inObject = c.inObject[:max(0, len(c.inObject)-1)]
		}
	}
	return len(piece), nil
}

// open counts an object or an array, with the first that may be in it.
func (c *Counter) open(object bool) {
	if object {
		c.objects++
	}
	if len(c.inObject) < maxDepth {
		c.inObject = append(c.inObject, object)
	}
	c.member()
}

// member counts one more key or element of what is open.
func (c *Counter) member() {
	c.values++
	if n := len(c.inObject); n > 0 && c.inObject[n-1] {
		c.keys++
	} else {
		c.elements++
	}
}

// Bytes returns how many bytes there were.
func (c *Counter) Bytes() int64 { return c.bytes }

// Values returns how many values and keys there were, at most.
func (c *Counter) Values() int64 { return 1 + c.values }

// Memory returns how many bytes of memory the document takes once it is decoded, at most, if an element of an array takes so many. The
// text itself, which a decoder may hold as well, and what Go keeps for its garbage collector are not counted.
func (c *Counter) Memory(element int64) int64 {
	return c.bytes + weightOther*c.others + element*c.elements + weightObject*c.objects + weightKey*c.keys
}
