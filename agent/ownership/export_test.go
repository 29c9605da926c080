package ownership

// Settled says whether Argo CD's settings are known.
func (t *Trees) Settled() bool { return t.settings.Ready() == nil }

// Listening says whether announcements are heard.
func (t *Trees) Listening() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.subscribed
}
