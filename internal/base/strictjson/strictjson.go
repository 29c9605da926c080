// Package strictjson decodes the JSON that a peer sends, in the one way that everybody else reads it.
//
// Decoders differ where a document is not plain: of two equal keys one takes the first and another the last, one takes "Spec" for
// "spec" and another does not, one stops at the end of the first value. Who checks a document by one decoder, and passes it on to
// be read by another, has checked nothing. So here a document has no key twice in any object, however the key is escaped, and
// nothing after its end, and keys are told apart by their case, as Kubernetes does.
package strictjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	kjson "sigs.k8s.io/json"
)

// MaxDepth is how deeply arrays and objects may nest. Argo CD's objects nest some twenty deep.
const MaxDepth = 256

// Unmarshal decodes a peer's document into v. Fields that v does not have are passed over: they may be of a newer release. Raw
// messages in v are as strict as the rest.
func Unmarshal(document []byte, v any) error {
	if err := Check(document); err != nil {
		return err
	}
	return Fields(document, v)
}

// Fields decodes into v a document that was checked already, or that an API server made: keys are told apart by their case.
func Fields(document []byte, v any) error {
	return kjson.UnmarshalCaseSensitivePreserveInts(document, v)
}

// Check returns what is wrong with a document, whatever is in it. It does not quote the document but for a key.
func Check(document []byte) error {
	if !json.Valid(document) {
		return json.Unmarshal(document, new(json.RawMessage)) // which says why
	}
	var open []object // the arrays and objects that are open
	for i := 0; i < len(document); i++ {
		switch document[i] {
		case '{', '[':
			if len(open) == MaxDepth {
				return fmt.Errorf("it nests more than %d deep", MaxDepth)
			}
			open = append(open, object{isArray: document[i] == '[', wantsKey: document[i] == '{'})
		case '}', ']':
			open = open[:len(open)-1]
		case ',':
			open[len(open)-1].wantsKey = !open[len(open)-1].isArray
		case '"':
			end := endOfString(document, i)
			if err := addKey(open, document[i:end]); err != nil {
				return err
			}
			i = end - 1
		}
	}
	return nil
}

// addKey takes a string into the innermost object, if it is a key of that.
func addKey(open []object, quoted []byte) error {
	if len(open) == 0 || !open[len(open)-1].wantsKey {
		return nil
	}
	return open[len(open)-1].add(quoted)
}

// endOfString returns where the string ends that begins at a quote, behind its last quote.
func endOfString(document []byte, start int) int {
	for i := start + 1; ; i++ {
		switch document[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

// object is an array or object while it is open.
type object struct {
	isArray, wantsKey bool
	few               []string            // its keys so far, as long as they are few
	many              map[string]struct{} // its keys so far, once they are not
}

// fewKeys is how many keys are compared one by one: nearly all objects have fewer.
const fewKeys = 16

// add takes in a key, as it is quoted. It returns an error for one that is there already.
func (o *object) add(quoted []byte) error {
	o.wantsKey = false
	key := string(quoted[1 : len(quoted)-1])
	for i := range quoted {
		if quoted[i] == '\\' || quoted[i] >= 0x80 { // escapes, and what is no UTF-8, decode to something else than is written
			if err := json.Unmarshal(quoted, &key); err != nil {
				return err
			}
			break
		}
	}
	if o.many != nil {
		if _, twice := o.many[key]; twice {
			return errTwice(key)
		}
		o.many[key] = struct{}{}
		return nil
	}
	if slices.Contains(o.few, key) {
		return errTwice(key)
	}
	if o.few = append(o.few, key); len(o.few) > fewKeys {
		o.many = make(map[string]struct{}, 2*len(o.few))
		for _, k := range o.few {
			o.many[k] = struct{}{}
		}
		o.few = nil
	}
	return nil
}

// longestShown is how much of a key is shown in an error.
const longestShown = 64

func errTwice(key string) error {
	if len(key) > longestShown {
		key = key[:longestShown] + "…"
	}
	return errors.New("it has the key " + strconv.QuoteToASCII(key) + " twice in one object")
}
