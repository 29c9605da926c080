package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of CPU times in /proc, the same on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// Usage is what a running program takes of the machine.
type Usage struct {
	Resident int64         // bytes of memory now
	Peak     int64         // bytes of memory at most
	CPU      time.Duration // user and system time since it was started
}

// Usage measures the running program.
func (p *Process) Usage() (Usage, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		return Usage{}, fmt.Errorf("memory of %s: %w", p.options.Name, err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
	if err != nil {
		return Usage{}, fmt.Errorf("CPU time of %s: %w", p.options.Name, err)
	}
	cpu, err := cpuTime(stat)
	if err != nil {
		return Usage{}, fmt.Errorf("CPU time of %s: %w", p.options.Name, err)
	}
	return Usage{Resident: kilobytes(status, "VmRSS:"), Peak: kilobytes(status, "VmHWM:"), CPU: cpu}, nil
}

func kilobytes(status []byte, field string) int64 {
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, field); found {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10
		}
	}
	return 0
}

// cpuTime adds utime and stime, which are the 12th and 13th fields after the program's name in parentheses.
func cpuTime(stat []byte) (time.Duration, error) {
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("%d fields in %q", len(fields), stat)
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}
