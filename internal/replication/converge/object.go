package converge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
)

// Facet names one kind of thing that is kept equal, for example "application-status".
type Facet string

// Key names an object within a facet. Both sides use the same key for the same object.
type Key string

// Version is a hash of an object's normalised payload. Equal versions mean equal objects; there is no order. The zero
// Version means that there is no object.
type Version [16]byte

// VersionOf returns the version of a payload. The caller normalises the payload first.
func VersionOf(payload []byte) Version {
	sum := sha256.Sum256(payload)
	return Version(sum[:len(Version{})])
}

// String returns the version in hexadecimal, for logs.
func (v Version) String() string { return hex.EncodeToString(v[:]) }

// ParseVersion returns the version that String wrote.
func ParseVersion(s string) (Version, error) {
	var v Version
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(v) {
		return v, fmt.Errorf("version %q: want %d hexadecimal digits", s, 2*len(v))
	}
	return Version(b), nil
}

// State is what one side holds under a key: the version of the object and the UID of the source object that it is or
// came from. The zero State means that nothing is held.
type State struct {
	UID     string
	Version Version
}

// Object is a state with its payload, ready to be sent or applied. The payload must not be changed by anyone.
type Object struct {
	State
	Payload []byte
	// Deleting says that a source object is being deleted, and that the payload says so. It is not sent.
	Deleting bool
}

// String says which object it is, and nothing of the payload, which may be a secret: so do all messages that carry one.
func (o Object) String() string { return o.UID + " " + o.Version.String() }

// LogValue is what a structured log has of the object.
func (o Object) LogValue() slog.Value { return slog.StringValue(o.String()) }

// Code is the kind of an apply's result.
type Code uint8

const (
	// Done means that the replica now matches the source, or that nothing needs to be done.
	Done Code = iota + 1
	// Retry means that it did not work this time: a conflict, an API server that is away.
	Retry
	// Refused means that the same object would be refused again: it is invalid, or someone may not write it.
	Refused
)

// String returns the code's name as it appears on the wire, in metrics and in logs.
func (c Code) String() string {
	switch c {
	case Done:
		return "done"
	case Retry:
		return "retry"
	case Refused:
		return "refused"
	default:
		return "unknown"
	}
}

// ParseCode returns the code that String wrote.
func ParseCode(s string) (Code, error) {
	for _, c := range []Code{Done, Retry, Refused} {
		if c.String() == s {
			return c, nil
		}
	}
	return 0, fmt.Errorf("result %q: want done, retry or refused", s)
}

// Result is what came of a Put or Delete.
type Result struct {
	Code Code
	// Absent says that the replica holds nothing under the key now, although it was sent an object: the object described
	// its own deletion, which is over.
	Absent bool
	// Reason says why, for users, when Code is not Done.
	Reason string
}

// ErrRefused marks an error that the same object would meet again: it is invalid, or someone may not write it.
var ErrRefused = errors.New("refused")

// resultOf converts an error of Apply or Remove to a result.
func resultOf(err error) Result {
	switch {
	case err == nil:
		return Result{Code: Done}
	case errors.Is(err, ErrRefused):
		return Result{Code: Refused, Reason: withoutMark(err.Error())}
	default:
		return Result{Code: Retry, Reason: err.Error()}
	}
}

// withoutMark returns an error's text without that of ErrRefused: the code says it already, and so does whoever shows the
// reason to users.
func withoutMark(text string) string {
	isMark := func(part string) bool { return part == ErrRefused.Error() }
	return strings.Join(slices.DeleteFunc(strings.Split(text, ": "), isMark), ": ")
}

// Source is the side of a facet that holds the truth about what one peer should hold. Its methods are called from
// several goroutines and answer from memory. They see all of the truth: a source whose cache is not yet complete must
// not be given to a session, since what it lacks will be deleted.
type Source interface {
	// All yields what the peer should hold.
	All() iter.Seq2[Key, State]
	// Project returns the newest form of an object, and false when the peer should hold nothing under the key.
	Project(Key) (Object, bool)
	// ReportResult takes the peer's answer to the last message about a key, or Done if a resync found the key equal. It is
	// called with Retry only after several failures in a row, and then now and again. It may write to its store. It is never
	// called for one key in parallel. While it returns an error it is called again, after a backoff; not if the error wraps
	// ErrRefused.
	ReportResult(context.Context, Key, Result) error
	// HasRefusedCondition reports whether the source object shows, to users, that the peer refused it.
	HasRefusedCondition(Key) bool
}

// Replica is the side of a facet that comes to hold what the source says. All and Held are called from several
// goroutines and answer from memory, in which the replica's own writes show at once. Apply and Remove are never called
// for one key at the same time.
type Replica interface {
	// All yields what is held.
	All() iter.Seq2[Key, State]
	// Held returns what is held under a key, the zero State if nothing is.
	Held(Key) State
	// Apply makes the replica's object match obj and returns what is held then, as the store answered that very write: a
	// later change by someone else must not show in it. Applying what is already held must not write anything. An error
	// that wraps ErrRefused is not tried again; any other is.
	Apply(ctx context.Context, key Key, obj Object) (State, error)
	// Remove makes the replica hold nothing under the key, and returns what is held then: more than nothing while a
	// deletion takes its time. It must spare an object that came from another source object than uid, which it returns;
	// an empty uid stands for any. Errors are as those of Apply.
	Remove(ctx context.Context, key Key, uid string) (State, error)
}
