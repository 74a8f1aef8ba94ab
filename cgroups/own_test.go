package cgroups

import "testing"

func TestParseOwn(t *testing.T) {
	for text, want := range map[string]string{
		"0::/system/tinylet\n": "/system/tinylet",
		"0::/\n":               "/",
		"3:net_cls:/\n1:name=openrc:/x\n0::/own\n": "/own",
		"0::/a b\t\n":                  "/a b\t",
		"0::/../beside\n":              "/../beside",
		"0::/gone (deleted)\n":         "/gone (deleted)",
		"1:name=systemd:/user.slice\n": "",
		"":                             "",
		"10::/no\n":                    "",
	} {
		if got, ok := ParseOwn(text); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", text, got, ok, want)
		}
	}
}
