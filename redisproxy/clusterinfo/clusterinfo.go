// Package clusterinfo is what Argo CD shows of a cluster: it takes what an agent's own Argo CD found out about the cluster
// that it runs on, and says of it whether the hub can reach it.
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
)

// maxSize bounds how long an agent's text may be. A cluster's list of kinds is some ten thousand letters, and a few packed
// bytes may unpack to as many as they like.
const maxSize = 8 << 20

// errTooLarge is of a text that is longer.
var errTooLarge = fmt.Errorf("it is larger than %d MiB", maxSize>>20)

// stateKey is the key of the connection's state, which is the hub's to say.
const stateKey = "connectionState"

// State says whether the hub can reach an agent.
type State struct {
	Agent     string
	Connected bool
	// Since is when that began. It may be zero: never, or not known.
	Since time.Time
}

// connection is Argo CD's ConnectionState.
type connection struct {
	Status  string     `json:"status"`
	Message string     `json:"message"`
	At      *time.Time `json:"attemptedAt"`
}

// Compose returns an Argo CD ClusterInfo that says what the agent's own does, if there is any, except for the state of the
// connection. What it does not know it leaves as it is. Both are gzipped JSON, or both plain.
func Compose(own []byte, compressed bool, state State, now time.Time) ([]byte, error) {
	told := describe(state, now)
	info, err := read(own, compressed)
	if err != nil { // whether the agent is connected is still to be told
		info = make(map[string]json.RawMessage)
		if state.Connected {
			told.Message = fmt.Sprintf("agent %q is connected, but what its Argo CD wrote about the cluster cannot be read (%v): "+
				"see what writes cluster|info into the spoke's Redis", state.Agent, err)
		}
	}
	claim(info, stateKey)
	if info[stateKey], err = json.Marshal(told); err != nil {
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

// claim takes away all that a reader may take for the key. Go's decoder, which is Argo CD's, does not mind the case of
// letters, and of several such keys believes the last.
func claim(info map[string]json.RawMessage, key string) {
	maps.DeleteFunc(info, func(other string, _ json.RawMessage) bool { return strings.EqualFold(other, key) })
}

func describe(state State, now time.Time) connection {
	at := now.UTC().Truncate(time.Second)
	if state.Connected {
		return connection{Status: "Successful", At: &at}
	}
	if state.Since.IsZero() {
		return connection{Status: "Failed", At: &at, Message: fmt.Sprintf("agent %q has not connected", state.Agent)}
	}
	since := state.Since.UTC().Truncate(time.Second)
	return connection{Status: "Failed", At: &since, Message: fmt.Sprintf(
		"agent %q is not connected since %s; what is shown is what was last known", state.Agent, since.Format(time.RFC3339))}
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
	if err := json.Unmarshal(plain, &info); err != nil {
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
