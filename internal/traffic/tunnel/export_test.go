package tunnel

const (
	// InboxSize is the most that an end keeps.
	InboxSize = inboxSize
	// FirstWindow and FirstUnread are how much a new conversation takes at least, and at most, that nobody reads: what is under
	// way, and what waits to be.
	FirstWindow = firstWindow
	FirstUnread = firstWindow + piece + pieces*piece + maxData
)
