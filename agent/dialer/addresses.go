package dialer

import "slices"

// maxLeft is how many addresses are remembered that the agent was asked to leave.
const maxLeft = 16

// addresses are those of principals that shut down, the latest last. A name may have the addresses of several principals, and DNS goes on to
// name one that shuts down, so the agent would come back to it.
type addresses []string

// and returns these addresses and a later one.
func (a addresses) and(address string) addresses {
	with := append(slices.DeleteFunc(slices.Clone(a), func(earlier string) bool { return earlier == address }), address)
	return with[max(0, len(with)-maxLeft):]
}
