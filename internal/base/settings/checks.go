package settings

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

const maxPort = 65535

// Port accepts the number of a TCP port.
func Port(port int) error {
	if port < 1 || port > maxPort {
		return fmt.Errorf("want a port, 1 to %d", maxPort)
	}
	return nil
}

// PortOrOff accepts the number of a TCP port, or 0 for none.
func PortOrOff(port int) error {
	if port < 0 || port > maxPort {
		return fmt.Errorf("want a port, 1 to %d, or 0 for none", maxPort)
	}
	return nil
}

// Host accepts a host name or an IP address, by which a server is dialled or which a server listens on. Nothing at all is
// accepted too: add NonEmpty.
func Host(host string) error {
	if host == "" || net.ParseIP(host) != nil || DNSSubdomain(strings.ToLower(strings.TrimSuffix(host, "."))) == nil {
		return nil
	}
	return errors.New("want a host name or an IP address, without a scheme and without a port")
}

// HostPort accepts an address: a host and a port.
func HostPort(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err == nil && host != "" && Host(host) == nil {
		if number, err := strconv.Atoi(port); err == nil && Port(number) == nil {
			return nil
		}
	}
	return errors.New("want a host and a port, such as argocd-redis:6379")
}

// NonEmpty accepts any text but none.
func NonEmpty(text string) error {
	if text == "" {
		return errors.New("want a value; this setting has no default")
	}
	return nil
}

// NonNegative accepts zero and more.
func NonNegative[T int | time.Duration](number T) error {
	if number < 0 {
		return errors.New("want zero or more")
	}
	return nil
}

// Positive accepts more than zero.
func Positive[T int | time.Duration](number T) error {
	if number <= 0 {
		return errors.New("want more than zero")
	}
	return nil
}

// AtLeast accepts a length of time that is not below the least.
func AtLeast(least time.Duration) Check[time.Duration] {
	return func(length time.Duration) error {
		if length < least {
			return fmt.Errorf("want at least %s", least)
		}
		return nil
	}
}

// OffOrAtLeast accepts a length of time that is not below the least, or 0 for never.
func OffOrAtLeast(least time.Duration) Check[time.Duration] {
	return func(length time.Duration) error {
		if length != 0 && length < least {
			return fmt.Errorf("want at least %s, or 0 for never", least)
		}
		return nil
	}
}

// OneOf accepts the named values only.
func OneOf(allowed ...string) Check[string] {
	return func(text string) error {
		if slices.Contains(allowed, text) {
			return nil
		}
		named := slices.DeleteFunc(slices.Clone(allowed), func(one string) bool { return one == "" })
		return fmt.Errorf("want one of %s", strings.Join(named, ", "))
	}
}

// Each accepts a list whose every value the check accepts.
func Each(check Check[string]) Check[[]string] {
	return func(texts []string) error {
		for _, text := range texts {
			if err := check(text); err != nil {
				return fmt.Errorf("%q: %w", text, err)
			}
		}
		return nil
	}
}

// File accepts the path of a file that this process can read. Nothing at all is accepted too: add NonEmpty.
func File(path string) error {
	if path == "" {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("want a file that can be read: %w", err)
	}
	defer func() { _ = file.Close() }() // nothing was written
	if info, err := file.Stat(); err != nil || info.IsDir() {
		return errors.New("want a file, not a folder")
	}
	return nil
}

// DNSLabel accepts what Kubernetes accepts as the name of a namespace. Nothing at all is accepted too: add NonEmpty.
func DNSLabel(name string) error { return dnsName(name, validation.IsDNS1123Label) }

// DNSSubdomain accepts what Kubernetes accepts as the name of a Secret. Nothing at all is accepted too: add NonEmpty.
func DNSSubdomain(name string) error { return dnsName(name, validation.IsDNS1123Subdomain) }

func dnsName(name string, problems func(string) []string) error {
	if name == "" {
		return nil
	}
	if found := problems(name); len(found) > 0 {
		return errors.New(strings.Join(found, "; "))
	}
	return nil
}
