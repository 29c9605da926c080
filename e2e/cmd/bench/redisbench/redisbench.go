// Package redisbench runs redis-benchmark, and reads what it says.
package redisbench

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Shape is how much is asked at a time.
type Shape struct {
	Connections int
	Requests    int // of each command
}

// Result is what one run found.
type Result struct {
	Rates map[string]float64 // requests per second by command, in lower case
	CPU   time.Duration      // that redis-benchmark itself took
}

// Run runs a redis-benchmark of SET and GET at an address.
func Run(ctx context.Context, program, address, password string, shape Shape) (Result, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return Result{}, err
	}
	cmd := exec.CommandContext(ctx, program, "-h", host, "-p", port, "-a", password, "-t", "set,get", "--csv",
		"-c", strconv.Itoa(shape.Connections), "-n", strconv.Itoa(shape.Requests))
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return Result{}, fmt.Errorf("redis-benchmark: %w\n%s", errors.Join(err, ctx.Err()), complaint.String())
	}
	rates, err := Parse(out)
	if err != nil {
		return Result{}, fmt.Errorf("redis-benchmark: %w\n%s%s", err, out, complaint.String())
	}
	return Result{Rates: rates, CPU: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}, nil
}

// Parse reads the table that redis-benchmark writes with --csv, and returns the requests per second by command, in lower case.
func Parse(table []byte) (map[string]float64, error) {
	lines, err := csv.NewReader(bytes.NewReader(table)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("table: %w", err)
	}
	rates := make(map[string]float64)
	for _, line := range lines {
		if len(line) < 2 || line[1] == "rps" {
			continue
		}
		rate, err := strconv.ParseFloat(line[1], 64)
		if err != nil {
			return nil, fmt.Errorf("requests per second of %s: %w", line[0], err)
		}
		rates[strings.ToLower(line[0])] = rate
	}
	for _, command := range []string{"get", "set"} {
		if rates[command] <= 0 {
			return nil, fmt.Errorf("it does not say how many %s there were", command)
		}
	}
	return rates, nil
}
