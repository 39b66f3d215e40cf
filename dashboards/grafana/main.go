// Command grafana writes the Grafana dashboards, as JSON, into the folder that it
// runs in: go generate ./dashboards/grafana.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

//go:generate go run .

func main() {
	files, err := render()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err == nil {
			err = os.WriteFile(name, files[name], 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "grafana:", err)
		os.Exit(1)
	}
}

// render returns the dashboards by the names of their files.
func render() (map[string][]byte, error) {
	files := map[string][]byte{}
	for name, builder := range map[string]*dashboard.DashboardBuilder{"headgate.json": overview(), "jobs.json": jobs()} {
		board, err := builder.Build()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for i := range board.Panels {
			number(&board.Panels[i], uint32(i+1))
		}
		var text bytes.Buffer
		out := json.NewEncoder(&text)
		out.SetEscapeHTML(false) // queries have < and >
		out.SetIndent("", "  ")
		if err := out.Encode(board); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files[name] = text.Bytes()
	}
	return files, nil
}

// number gives a panel an ID, so that links to it stay right.
func number(p *dashboard.PanelOrRowPanel, id uint32) {
	if p.Panel != nil {
		p.Panel.Id = &id
		return
	}
	p.RowPanel.Id = id
}
