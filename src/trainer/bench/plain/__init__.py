"""Scripts with nothing of ours in them, each started as `SCRIPT FOLDER`; they find each other as neighbours."""
