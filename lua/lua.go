// Package lua embeds headgate's Redis scripts, one file for each command. Functions that several
// scripts share are in the include directories. The header of a script lists its keys, arguments
// and reply. Package internal/script loads the scripts.
package lua

import "embed"

// Files are the scripts and includes.
//
//go:embed */*.lua */include/*.lua
var Files embed.FS
