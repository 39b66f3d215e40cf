package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
)

// Network is a range of IP addresses.
type Network struct{ netip.Prefix }

// UnmarshalText reads a range such as 10.0.0.0/8, or one address.
func (n *Network) UnmarshalText(text []byte) error {
	if a, err := netip.ParseAddr(string(text)); err == nil && a.Zone() == "" && !a.Is4In6() {
		n.Prefix = netip.PrefixFrom(a, a.BitLen())
		return nil
	}
	p, err := netip.ParsePrefix(string(text))
	switch {
	case err != nil || p.Addr().Is4In6():
		return fmt.Errorf("%q: want a network such as 10.0.0.0/8 or fd00::/8, or an address", text)
	case p != p.Masked():
		return fmt.Errorf("%q: an address within a network: want %s, or %s alone", text, p.Masked(), p.Addr())
	}
	n.Prefix = p
	return nil
}

// Size is a number of bytes.
type Size int64

var (
	sizeForm  = regexp.MustCompile(`^([0-9]{1,9}) ?(kB|MB|GB|KiB|MiB|GiB)$`)
	sizeUnits = map[string]int64{
		"kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
	}
)

// UnmarshalText reads a size such as 100MB.
func (s *Size) UnmarshalText(text []byte) error {
	m := sizeForm.FindSubmatch(text)
	if m == nil {
		return fmt.Errorf("%q: want a size such as 500kB, 100MB or 2GiB", text)
	}
	n, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil || n == 0 {
		return fmt.Errorf("%q: want a size above zero", text)
	}
	*s = Size(n * sizeUnits[string(m[2])])
	return nil
}

// String is the number of bytes.
func (s Size) String() string { return strconv.FormatInt(int64(s), 10) + " bytes" }
