// Package clusterinfo composes the state of an agent's cluster as Argo CD shows it: what the agent's own Argo CD knows of the
// cluster that it runs on, and whether the agent is connected to the hub.
package clusterinfo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/strictjson"
)

// maxSize bounds an agent's text. A cluster's list of kinds has some ten thousand letters, and a few compressed bytes may unpack
// to as many as they like.
const maxSize = 8 << 20

// errTooLarge is the error for a longer text.
var errTooLarge = fmt.Errorf("it is larger than %d MiB", maxSize>>20)

// stateKey is the field of the connection's state, which the hub decides.
const stateKey = "connectionState"

// State is whether an agent is connected.
type State struct {
	Agent     string
	Connected bool
	// Since is when that began. It is zero if it never has, or that is not known.
	Since time.Time
	// Reason is why it is not known whether that is so still, and Lost since when. Nil means that it is known.
	Reason error
	Lost   time.Time
}

// connectionState is Argo CD's ConnectionState.
type connectionState struct {
	Status  string     `json:"status"`
	Message string     `json:"message"`
	At      *time.Time `json:"attemptedAt"`
}

// Compose returns an Argo CD ClusterInfo that is the agent's own, if there is any, with another connection state. Fields that it
// does not know it leaves as they are. Both are gzipped JSON, or both plain.
func Compose(own []byte, compressed bool, state State, now time.Time) ([]byte, error) {
	connection := connectionStateOf(state, now)
	info, err := read(own, compressed)
	if err != nil { // the connection state is still known
		info = make(map[string]json.RawMessage)
		if state.Connected && state.Reason == nil {
			connection.Message = fmt.Sprintf("agent %q is connected, but what its Argo CD wrote about the cluster cannot be read (%v): "+
				"see what writes cluster|info into the spoke's Redis", state.Agent, err)
		}
	}
	removeKey(info, stateKey)
	if info[stateKey], err = json.Marshal(connection); err != nil {
		return nil, fmt.Errorf("connection state: %w", err)
	}
	if _, ok := info["applicationsCount"]; !ok {
		info["applicationsCount"] = json.RawMessage("0")
	}
	plain, err := json.Marshal(info)
	if err != nil {
		return nil, fmt.Errorf("cluster info: %w", err)
	}
	if !compressed {
		return plain, nil
	}
	return pack(plain)
}

// removeKey removes all that a reader may take for the key. Go's decoder, which is Argo CD's, ignores the case of letters, and
// takes the last of several such keys.
func removeKey(info map[string]json.RawMessage, key string) {
	maps.DeleteFunc(info, func(other string, _ json.RawMessage) bool { return strings.EqualFold(other, key) })
}

// lastKnown is what all is that is not of now.
const lastKnown = "; what is shown is the last known state"

// connectionStateOf returns a state whose time is the last at which it was known to be so: now, or when the agent left, or when
// the principal did.
func connectionStateOf(state State, now time.Time) connectionState {
	at, since := now.UTC().Truncate(time.Second), state.Since.UTC().Truncate(time.Second)
	connected := "is not connected"
	if state.Connected {
		connected = "is connected"
	}
	is := fmt.Sprintf("agent %q %s since %s", state.Agent, connected, since.Format(time.RFC3339))
	switch {
	case state.Reason != nil:
		lost := state.Lost.UTC().Truncate(time.Second)
		return connectionState{Status: "Unknown", At: &lost, Message: fmt.Sprintf(
			"whether agent %q is connected is not known since %s, because the principal cannot be reached (%v)%s",
			state.Agent, lost.Format(time.RFC3339), state.Reason, lastKnown)}
	case state.Connected && state.Since.IsZero():
		return connectionState{Status: "Successful", At: &at, Message: fmt.Sprintf("agent %q is connected", state.Agent)}
	case state.Connected:
		return connectionState{Status: "Successful", At: &at, Message: is}
	case state.Since.IsZero():
		return connectionState{Status: "Failed", At: &at, Message: fmt.Sprintf("agent %q has not connected", state.Agent)}
	default:
		return connectionState{Status: "Failed", At: &since, Message: is + lastKnown}
	}
}

// read reads an agent's own ClusterInfo, which may be none.
func read(own []byte, compressed bool) (map[string]json.RawMessage, error) {
	info := make(map[string]json.RawMessage)
	if len(own) == 0 {
		return info, nil
	}
	plain, err := unpack(own, compressed)
	if err != nil {
		return nil, err
	}
	if err := strictjson.Unmarshal(plain, &info); err != nil {
		return nil, err
	}
	if info == nil {
		return nil, errors.New("it is null")
	}
	return info, nil
}

func unpack(packed []byte, compressed bool) ([]byte, error) {
	plain := packed
	if compressed {
		reader, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return nil, err
		}
		if plain, err = io.ReadAll(io.LimitReader(reader, maxSize+1)); err != nil {
			return nil, err
		}
	}
	if len(plain) > maxSize {
		return nil, errTooLarge
	}
	return plain, nil
}

func pack(plain []byte) ([]byte, error) {
	var packed bytes.Buffer
	writer, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := writer.Write(plain); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}
