package sessions_test

import (
	"testing"

	"github.com/cloudevents/sdk-go/binding/format/protobuf/v2/pb"
)

// endReason returns why the stream ends.
func (a agent) endReason(t *testing.T) error {
	t.Helper()
	for {
		if _, err := a.Recv(); err != nil {
			return err
		}
	}
}

// failedStream is a stream that could not be opened.
type failedStream struct{ err error }

func (f failedStream) Send(*pb.CloudEvent) error     { return f.err }
func (f failedStream) Recv() (*pb.CloudEvent, error) { return nil, f.err }
