package wire

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/binding/format/protobuf/v2/pb"
)

// Limits on what a peer may have us keep, in bytes. Payloads are bounded by gRPC's own limit on a message. No name that
// Kubernetes gives is as long as these.
const (
	maxFacet = 64
	maxKey   = 512
	maxUID   = 128
	// maxSelector is of a label selector, which an operator writes. It ends in logs and statuses, which show less of it.
	maxSelector = 4 << 10

	maxReason = 4 << 10 // what is longer is cut: it is for users, and what it is about must get through
	maxSmall  = 64      // of a result, a number, a digest, a mode and the like

	// Of an agent's cluster: as many labels, and annotations, and as long ones as the principal would write.
	maxClusterKeys  = 32
	maxClusterKey   = 317
	maxClusterValue = 1 << 10

	maxSeen    = 32  // facets in a hello: there are far fewer
	maxBuckets = 256 // in a bucket request: there are no more

	// maxShown is how much of a peer's text gets into our log.
	maxShown = 200
)

// errTooLong says which text of an event is too long, without the text.
func errTooLong(e *pb.CloudEvent, name string, length, limit int) error {
	return fmt.Errorf("%s: %s: want at most %d bytes, not %d", cut(e.GetType(), maxSmall), name, limit, length)
}

// cut returns the beginning of a text, of at most so many bytes, and what is no UTF-8 in it replaced: protobuf would
// refuse to send it.
func cut(s string, limit int) string {
	if len(s) > limit {
		// Half a character at the end is left out, not replaced.
		end := limit
		for end > limit-utf8.UTFMax && end > 0 && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end]
	}
	return strings.ToValidUTF8(s, "?") // never longer
}

// clip is cut for a log, which shows that something was left out.
func clip(s string) string {
	if len(s) <= maxShown {
		return cut(s, maxShown)
	}
	return fmt.Sprintf("%s… (%d bytes)", cut(s, maxShown), len(s))
}
