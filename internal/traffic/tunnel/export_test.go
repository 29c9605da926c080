package tunnel

const (
	// InboxSize is the most that an end keeps.
	InboxSize = inboxSize
	// Window and MaxUnread are how much a connection takes at least, and at most, that nobody reads: what is in flight, and
	// what waits to be.
	Window    = window
	MaxUnread = window + chunkSize + maxChunks*chunkSize + maxData
)
