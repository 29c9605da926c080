package place

// Result is what a step has come to.
type Result struct {
	// Where names the Secret.
	Where   string
	Outcome Outcome
	// About says what is in it.
	About string
	// Notes are what a person should look after.
	Notes []string
}

// String says so on one line, without the notes.
func (r Result) String() string { return r.Where + ": " + string(r.Outcome) + ": " + r.About }
