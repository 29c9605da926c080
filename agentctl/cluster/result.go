package cluster

// Result is what became of a Secret, for the user.
type Result struct {
	// Where names the Secret.
	Where   string
	Outcome Outcome
	// About says what is in it.
	About string
	// Notes are warnings.
	Notes []string
}

// String says so on one line, without the notes.
func (r Result) String() string { return r.Where + ": " + string(r.Outcome) + ": " + r.About }
